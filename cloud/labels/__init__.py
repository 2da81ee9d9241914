"""What is in a case: what the teacher says, how far it is believed, and what people say."""
