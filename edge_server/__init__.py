"""The edge box: a stronger look at the frames that cameras send up."""
