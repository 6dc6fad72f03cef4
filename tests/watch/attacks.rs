//! Users who want to be spared, to get others ended, or to flood whoever is told.
