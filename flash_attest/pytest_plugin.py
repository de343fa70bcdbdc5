"""The pytest plug-in of an installed flash-attest."""
