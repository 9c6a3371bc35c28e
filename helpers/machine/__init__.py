"""What this computer is, what is wrong with it, and how far its device is used."""
