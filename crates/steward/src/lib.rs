//! Composes the policies: claim, place, launch, clean up.
