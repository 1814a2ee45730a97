"""What the dashboard's tests share."""
