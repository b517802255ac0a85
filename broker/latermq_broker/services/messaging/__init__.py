"""The messaging calls of apache.rocketmq.v2."""
