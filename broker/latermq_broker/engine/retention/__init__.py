"""Old segments go; what is still needed is rolled forward."""
