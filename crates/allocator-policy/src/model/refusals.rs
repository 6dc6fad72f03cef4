//! The refusals of a modelled device, and what would follow on a larger one.

/// The refusals of a device since its start and in the current request of the program.
///
/// Assume that a request failed on a device of some total. On a larger device of a total `t`, all
/// refusals of more than `t` remain, and the first refusal of `t` becomes a grant. If `t` is the
/// smallest refused amount, all events before that refusal stay the same.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    /// The smallest amount in use at which a refused part of a request would have been granted.
    least: Option<u64>,
    /// The amount of the last refusal, and the smallest of those before it.
    last: Option<u64>,
    least_before_last: Option<u64>,
    /// The smallest amount before the current request.
    least_before_request: Option<u64>,
    /// A hash of all memory in use on the device, now and when the request began.
    held: u64,
    held_before_request: u64,
}

impl Refusals {
    /// Returns the smallest refused amount.
    pub(super) fn least(&self) -> Option<u64> {
        self.least
    }

    pub(super) fn begin_request(&mut self) {
        self.least_before_request = self.least;
        self.held_before_request = self.held;
        self.last = None;
    }

    /// Adds a refusal: the memory that would have been in use.
    pub(super) fn add(&mut self, wanted: u64) {
        self.least_before_last = self.least;
        self.last = Some(wanted);
        self.least = Some(self.least.map_or(wanted, |least| least.min(wanted)));
    }

    /// Records that a region or page was taken or returned; doing both cancels out. Reserved
    /// address ranges do not count, because the request would reserve them again.
    pub(super) fn note_change(&mut self, address: u64, size: u64) {
        self.held ^= mix(address ^ mix(size));
    }

    /// Returns the total with which the failed request continues as on a device of that total, and
    /// forgets the refusals that would not have happened there; `None` if it would not continue
    /// from here.
    pub(super) fn raise(&mut self) -> Option<u64> {
        let (least, last) = (self.least?, self.last?);
        let is_less = |before: Option<u64>| before.is_none_or(|before| least < before);
        if last == least && is_less(self.least_before_last) {
            // All refusals before the last one remain, as do the policy's responses to them.
            self.least = self.least_before_last;
        } else if self.held == self.held_before_request && is_less(self.least_before_request) {
            // The failed request had no effect, so it can start over.
            self.least = self.least_before_request;
        } else {
            return None;
        }
        self.least_before_request = self.least;
        self.held_before_request = self.held;
        self.last = None;
        Some(least)
    }
}

/// Distributes the bits of a number (the finalizer of splitmix64, by Sebastiano Vigna).
fn mix(number: u64) -> u64 {
    let mixed = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(before: &[u64], in_request: &[u64]) -> Refusals {
        let mut refusals = Refusals::default();
        refusals.begin_request();
        before.iter().for_each(|wanted| refusals.add(*wanted));
        refusals.begin_request();
        in_request.iter().for_each(|wanted| refusals.add(*wanted));
        refusals
    }

    #[test]
    fn request_continues_where_next_size_first_differs() {
        for (before, in_request, has_effect, raised, left) in [
            (&[][..], &[70][..], false, Some(70), None),
            (&[90, 80], &[70], true, Some(70), Some(80)),
            // An earlier request would have been granted.
            (&[90, 60], &[70], false, None, Some(60)),
            (&[70], &[70], false, None, Some(70)),
            // The policy freed memory and tried again.
            (&[], &[90, 70], true, Some(70), Some(90)),
            (&[80], &[90, 70], true, Some(70), Some(80)),
            // The policy made the same request twice, with and without an effect in between.
            (&[80], &[70, 70], false, Some(70), Some(80)),
            (&[80], &[70, 70], true, None, Some(70)),
            // The first of these refusals would have been the grant.
            (&[80], &[70, 75], true, None, Some(70)),
            (&[], &[], false, None, None),
        ] {
            let mut refusals = refused(before, in_request);
            if has_effect {
                refusals.note_change(5, 512);
            }
            assert_eq!((refusals.raise(), refusals.least()), (raised, left), "{in_request:?}");
        }
    }

    #[test]
    fn taking_and_returning_memory_cancel_out() {
        let mut refusals = refused(&[], &[70, 70]);
        for _ in 0..2 {
            refusals.note_change(5, 512);
            refusals.note_change(9, 512);
        }
        assert_eq!(refusals.raise(), Some(70));
    }
}
