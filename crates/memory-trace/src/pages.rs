//! The pages of which expandable segments are made.

use crate::trace::SegmentKind;

/// Returns of which kind pages are by their length, which is told of no page.
pub(crate) fn kind_of_pages(size: u64) -> SegmentKind {
    match size.is_multiple_of(page_of(SegmentKind::Large)) {
        true => SegmentKind::Large,
        false => SegmentKind::Small,
    }
}

/// Returns the pages of which the expandable segments of a kind are made.
pub(crate) fn page_of(kind: SegmentKind) -> u64 {
    match kind {
        SegmentKind::Small => 2 << 20,
        SegmentKind::Large => 20 << 20,
    }
}
