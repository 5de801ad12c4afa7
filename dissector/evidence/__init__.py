"""What can be shared of a capture: anonymous and redacted copies, and bundles with a finding."""
