//! The pages of expandable segments.

use crate::trace::SegmentKind;

/// Returns the kind of pages of this size; a recording contains no kind for pages.
pub(crate) fn kind_of_pages(size: u64) -> SegmentKind {
    match size.is_multiple_of(page_of(SegmentKind::Large)) {
        true => SegmentKind::Large,
        false => SegmentKind::Small,
    }
}

/// Returns the page size of expandable segments of a kind.
pub(crate) fn page_of(kind: SegmentKind) -> u64 {
    match kind {
        SegmentKind::Small => 2 << 20,
        SegmentKind::Large => 20 << 20,
    }
}
