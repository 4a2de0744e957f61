"""The bench that holds polyhead against other libraries: ./polyhead bench peers."""
