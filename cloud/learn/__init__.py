"""Learning: drift and triggers, dataset snapshots, distillation of a new student from labelled cases."""
