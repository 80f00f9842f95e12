"""Page of `asrtool check`: findings on audio and texts."""
