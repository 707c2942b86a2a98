"""The root daemon that holds network egress per cgroup. It distrusts every byte."""
