//! The permission to act.

/// Shows that an action was authorised: the owner of a token may send signals and reset devices.
///
/// It has no size and no `Default`. The only constructor is [`ActToken::user_confirmed`]. The
/// program calls it after it has read `--yes`, after a confirmation on the screen, or to end what
/// it started, and a test calls it to act. Modelled on omdb's token for destructive operations.
#[derive(Debug)]
pub struct ActToken(());

impl ActToken {
    /// Returns a token. Call this only if a user explicitly requested the action.
    pub fn user_confirmed() -> Self {
        ActToken(())
    }
}
