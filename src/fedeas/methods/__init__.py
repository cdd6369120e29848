"""What an FL method changes in local training and at the server; orthogonal to augmentation."""
