//! The frame that each frame is compared with.
//!
//! Frames form chunks of [`LENGTH`], each of which starts with a key frame: a whole snapshot. No
//! frame depends on one of another chunk. The frame at index `p` of a chunk is compared with the
//! one at `p` without its lowest bit (40 with 32, 39 with 38), and one at a multiple of [`ANCHOR`]
//! with the key frame. So a frame is read through at most six others, most frames are compared with
//! one that is a second or two older, and a damaged frame costs at most the [`ANCHOR`] that depend
//! on it. The key frame, on which all depend, is stored twice.

/// The most frames of a chunk.
pub(crate) const LENGTH: u16 = 512;
/// The distance between frames that are compared with the key frame.
pub(crate) const ANCHOR: u16 = 32;
/// The index before which the key frame is stored again: far enough from the first that one damaged
/// disk block does not hit both.
pub(crate) const COPY: u16 = 64;

/// Returns the index of the frame that the one at `position` is compared with; `None` for a key frame.
pub(crate) fn base(position: u16) -> Option<u16> {
    match position {
        0 => None,
        _ if position.is_multiple_of(ANCHOR) => Some(0),
        _ => Some(position & (position - 1)),
    }
}

/// Returns the indices that lead to this one, the key frame first and this one last.
pub(crate) fn path(position: u16) -> Vec<u16> {
    let mut path: Vec<u16> =
        std::iter::successors(Some(position), |position| base(*position)).collect();
    path.reverse();
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_short_and_lead_from_the_key_frame() {
        assert_eq!(path(0), [0]);
        assert_eq!(path(39), [0, 32, 36, 38, 39]);
        assert_eq!(path(511).len(), 7);
        for position in 0..LENGTH {
            assert!(path(position).len() <= 7 && path(position)[0] == 0, "{position}");
            let dependent = (0..LENGTH).filter(|other| path(*other).contains(&position)).count();
            assert!(position == 0 || dependent <= usize::from(ANCHOR), "{position}: {dependent}");
        }
    }
}
