#!/bin/bash
# As the official image has it.
exec java -Xmx128m -cp '/opt/kafka/libs/*' org.apache.kafka.tools.AclCommand "$@"
