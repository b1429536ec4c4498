"""What every module may use. Nothing here imports another part of the package."""
