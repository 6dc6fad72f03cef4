//! Exact division of an amount into parts.

use std::time::Duration;

/// Divides an amount in proportion to weights; the parts add up to it. If all weights are zero, the
/// parts are equal.
pub(crate) fn divide(amount: u128, weights: &[u64]) -> impl Iterator<Item = u128> {
    let whole: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let equal = whole == 0;
    let whole = if equal { weights.len() as u128 } else { whole };
    // Prevents overflow of the products.
    let shift = (u128::BITS - whole.leading_zeros()).saturating_sub(63);
    let until = move |weight: u128| {
        let (part, whole) = (weight >> shift, whole >> shift);
        amount / whole * part + amount % whole * part / whole
    };
    let mut before = 0;
    weights.iter().map(move |weight| {
        let start = until(before);
        before += if equal { 1 } else { u128::from(*weight) };
        until(before) - start
    })
}

/// Divides a duration in proportion to weights.
pub(crate) fn divide_time(time: Duration, weights: &[u64]) -> impl Iterator<Item = Duration> {
    divide(time.as_nanos(), weights).map(nanos)
}

/// Returns a duration of this many nanoseconds.
pub(crate) fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos_u128(nanos.min(u128::from(u64::MAX)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn equal_parts_if_no_weight_is_known() {
        assert_eq!(divide(10, &[0, 0, 0]).collect::<Vec<_>>(), [3, 3, 4]);
        assert_eq!(divide(10, &[]).count(), 0);
        assert_eq!(divide(10, &[1, 0, 3]).collect::<Vec<_>>(), [2, 0, 8]);
    }

    proptest! {
        #[test]
        fn parts_add_up_and_follow_weights(
            amount in 0..=u128::from(u64::MAX),
            weights in prop::collection::vec(prop_oneof![Just(0), 0..1_000_u64, any::<u64>()], 1..9),
        ) {
            let parts: Vec<u128> = divide(amount, &weights).collect();
            prop_assert_eq!(parts.iter().sum::<u128>(), amount);
            // A larger weight gets a larger part, apart from rounding.
            let most = weights.iter().zip(&parts).max_by_key(|(weight, _)| **weight);
            prop_assert!(parts.iter().all(|part| *part <= most.unwrap().1 + 2));
        }
    }
}
