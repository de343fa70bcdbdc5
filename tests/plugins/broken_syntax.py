IMPL = Implementation(name="broken_syntax", forward=
