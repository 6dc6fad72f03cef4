//! The figures of an engine's message, and values derived from them.

use gpu_core::Bytes;
use gpu_text::oom::{Event, Fact, Figure, Framework};

/// The memory to leave free in addition to the request when a fraction is lowered, because
/// PyTorch's segments are larger than the tensors in them.
const MARGIN: u64 = 256 << 20;

/// The highest sensible fraction of a device for an engine, in hundredths; the context needs the
/// rest.
const MAX_HUNDREDTHS: u64 = 95;

/// The percentage of a device at which weights leave too little for everything else.
const FULL_PERCENT: u128 = 85;

/// A message of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message<'a>(pub(super) &'a Event);

impl Message<'_> {
    pub(super) fn fact(self, fact: Fact) -> Option<u64> {
        u64::try_from(*self.0.facts.get(&fact)?).ok()
    }

    fn bytes(figure: &Option<Figure>) -> Option<u64> {
        figure.as_ref()?.bytes.map(|bytes| bytes.0)
    }

    pub(super) fn asked(self) -> Option<u64> {
        Message::bytes(&self.0.tried)
    }

    pub(super) fn free(self) -> Option<u64> {
        Message::bytes(&self.0.free)
    }

    pub(super) fn total(self) -> Option<u64> {
        Message::bytes(&self.0.total)
    }

    pub(super) fn limit(self) -> Option<u64> {
        Message::bytes(&self.0.limit)
    }

    pub(super) fn needed(self) -> Option<u64> {
        Message::bytes(&self.0.needed)
    }

    pub(super) fn used(self) -> Option<u64> {
        Message::bytes(&self.0.allocated)
    }

    /// Returns the memory that is left in the engine's pool.
    pub(super) fn left(self) -> Option<u64> {
        self.0.dump.pool?.available.map(|bytes| bytes.0)
    }

    /// Returns the KV cache that is missing after loading the weights, if the engine printed a
    /// negative size.
    pub(super) fn deficit(self) -> Option<u64> {
        self.0.facts.get(&Fact::CacheBytes).filter(|bytes| **bytes < 0).map(|it| it.unsigned_abs())
    }

    /// Returns the length that fits, as printed or in proportion to the memory, which is valid only
    /// for full attention. It is a multiple of the usual block of 16 tokens.
    pub(super) fn fitting_length(self) -> Option<u64> {
        let in_proportion = || {
            let wanted = self.fact(Fact::ContextLength)?;
            let tokens = u128::from(wanted) * u128::from(self.left()?);
            let tokens = tokens.checked_div(u128::from(self.asked()?))?;
            u64::try_from(tokens).ok().map(|tokens| tokens / 16 * 16)
        };
        self.fact(Fact::FittingLength).or_else(in_proportion).filter(|tokens| *tokens > 0)
    }

    /// Returns the memory fraction that adds this many bytes of the device, if that much was free
    /// at startup.
    fn raised(self, more: u64) -> Option<u64> {
        let (now, total) =
            (self.fact(Fact::Utilization)?, self.total().filter(|total| *total > 0)?);
        let added = (u128::from(more) * 1_000_000).div_ceil(u128::from(total));
        let hundredths = (u128::from(now) + added).div_ceil(10_000);
        let free = self.fact(Fact::FreeBefore);
        let most = free.map_or(u128::from(MAX_HUNDREDTHS), |free| {
            (u128::from(free) * 100 / u128::from(total)).min(100)
        });
        u64::try_from(hundredths).ok().filter(|_| hundredths <= most)
    }

    /// Returns the KV cache that is missing for the configured length, in proportion to the length
    /// that fits.
    fn missing_by_length(self) -> Option<u64> {
        let (wanted, fits) = (self.fact(Fact::ContextLength)?, self.fact(Fact::FittingLength)?);
        let more = u128::from(wanted.checked_sub(fits)?);
        let missing = u128::from(self.fact(Fact::CacheBytes)?) * more;
        u64::try_from(missing.checked_div(u128::from(fits))?).ok()
    }

    /// Returns the memory fraction of vLLM at which its KV cache would suffice.
    pub(super) fn fraction_for_cache(self) -> Option<String> {
        let missing = match (self.asked(), self.left()) {
            (Some(asked), Some(left)) => asked.saturating_sub(left),
            _ => self.deficit().or_else(|| self.missing_by_length())?,
        };
        self.raised(missing).map(hundredths)
    }

    /// Returns the memory fraction of vLLM that leaves room for the request.
    pub(super) fn lower_fraction(self) -> Option<String> {
        let (now, total) =
            (self.fact(Fact::Utilization)?, self.total().filter(|total| *total > 0)?);
        let less = u128::from(self.asked()?.saturating_add(MARGIN)) * 1_000_000;
        let less = u64::try_from(less.div_ceil(u128::from(total))).ok()?;
        let left = now.checked_sub(less)? / 10_000;
        (left >= 10).then(|| hundredths(left))
    }

    /// Returns a static fraction for SGLang between the need of the weights and the maximum.
    pub(super) fn raised_static_fraction(self) -> Option<String> {
        let (weights, free) = (self.fact(Fact::Weights)?, self.fact(Fact::FreeAfterWeights)?);
        let all = u128::from(weights) + u128::from(free);
        let least = (u128::from(weights) * 100).checked_div(all)?;
        // Half of the remainder goes to the KV cache.
        let half = u64::try_from((least + 100) / 2).ok()?.min(MAX_HUNDREDTHS);
        let now = self.fact(Fact::Utilization).unwrap_or(0) / 10_000;
        (u128::from(half) > least && half > now).then(|| hundredths(half))
    }

    /// Returns the static fraction of SGLang that leaves room for the request.
    pub(super) fn lowered_static_fraction(self) -> Option<String> {
        let now = self.fact(Fact::Utilization)?;
        let all = match (self.fact(Fact::Weights), self.fact(Fact::FreeAfterWeights)) {
            (Some(weights), Some(free)) => weights.saturating_add(free),
            _ => self.total()?,
        };
        let less = (u128::from(self.asked()?) * 1_000_000).checked_div(u128::from(all))?;
        let less = u64::try_from(less).ok()?.checked_add(10_000)?;
        let left = now.checked_sub(less)? / 10_000;
        (left >= 10).then(|| hundredths(left))
    }

    /// Returns whether the weights take so much of the device that only settings for the weights
    /// help.
    pub(super) fn weights_fill(self) -> bool {
        let before = self.fact(Fact::FreeBefore).zip(self.fact(Fact::FreeAfterWeights));
        let weights = before.and_then(|(before, after)| before.checked_sub(after));
        weights.zip(self.total()).is_some_and(|(weights, total)| {
            u128::from(weights) * 100 >= u128::from(total) * FULL_PERCENT
        })
    }

    /// Returns how many layers of llama.cpp fit, from the size of the buffer for all layers and the
    /// free memory.
    pub(super) fn layers(self) -> Option<String> {
        let (layers, asked) = (self.fact(Fact::LayersOnDevices)?, self.asked()?);
        let missing = asked.checked_sub(self.fact(Fact::FreeBefore)?)?;
        let of_layer = asked.checked_div(layers).filter(|bytes| *bytes > 0)?;
        let left = layers.checked_sub(missing.div_ceil(of_layer))?;
        (left < layers).then(|| left.to_string())
    }
}

/// `0.88`.
fn hundredths(value: u64) -> String {
    format!("{}.{:02}", value / 100, value % 100)
}

/// Returns these bytes in MiB, rounded up.
pub(super) fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(Bytes::MIB)
}

/// Returns the engine of a message: the one that contains the framework, or else the framework
/// itself.
pub(super) fn engine(event: &Event) -> Framework {
    event.engine.unwrap_or(event.framework)
}
