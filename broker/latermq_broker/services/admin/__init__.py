"""The admin calls of apache.rocketmq.v2."""
