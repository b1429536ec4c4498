"""What is made of the rows of a group."""
