"""A page of metrics with the label `shard` in every sample."""

from latermq_broker.cluster.metrics_label import labelled


def test_every_sample_says_its_shard() -> None:
    page = '# HELP a_total what\n# TYPE a_total counter\na_total 1\nb{topic="x y",le="1"} 2.5\n'
    assert "".join(labelled([page, "c 1\n# EOF\n"], 3)) == (
        '# HELP a_total what\n# TYPE a_total counter\na_total{shard="3"} 1\n'
        'b{shard="3",topic="x y",le="1"} 2.5\nc{shard="3"} 1\n# EOF\n'
    )
