"""What can be shared of a capture: anonymous copies, and bundles that show a finding."""
