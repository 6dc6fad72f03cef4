//! The permission to act.

/// Shows that somebody decided to act: whoever holds one may send signals and reset devices.
///
/// It has no size and no `Default`; the only way to one is [`ActToken::user_confirmed`], which the
/// program on top calls where it has read `--yes` or is to end what it started, and a test where
/// it means to act. After omdb's token for destructive operations.
#[derive(Debug)]
pub struct ActToken(());

impl ActToken {
    /// Returns a token. To be called only where a person asked for the act in so many words.
    pub fn user_confirmed() -> Self {
        ActToken(())
    }
}
