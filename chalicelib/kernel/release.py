"""The release of Tidemill. It stands in the tree because a Lambda's package has no distribution metadata."""

RELEASE = "0.1.0"
