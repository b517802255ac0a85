"""What a consumer wants: tags and SQL92."""
