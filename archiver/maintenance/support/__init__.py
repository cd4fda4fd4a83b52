"""What an administrator sends to the person who helps: versions, settings, figures and errors, without secrets and mail."""
