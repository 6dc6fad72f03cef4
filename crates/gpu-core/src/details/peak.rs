//! The peak rates of a device.

use super::DeviceDetails;

impl DeviceDetails {
    /// Returns how fast the memory is read at its highest clock, in bytes per second; `None` if the
    /// groups `Product` and `Clocks` lack a value.
    ///
    /// Two transfers for each clock over the width of the bus, as CUDA's sample `deviceQuery`
    /// computes it: 732 GB/s for a P100 with 715 MHz and 4,096 bits.
    pub fn peak_memory_rate(&self) -> Option<u64> {
        let megahertz = self.clocks.as_ref()?.memory_max.ok()?;
        let bits = self.product.as_ref()?.memory_bus_width.ok()?;
        Some(u64::from(megahertz) * 1_000_000 * 2 * u64::from(bits / 8)).filter(|rate| *rate > 0)
    }

    /// Returns how many operations on 32-bit numbers the cores do in a second at their highest
    /// clock, without tensor cores; `None` if the groups `Product` and `Clocks` lack a value.
    ///
    /// A core does a multiplication and an addition for each clock: 15.7 trillion for a V100 with
    /// 5,120 cores and 1,530 MHz (NVIDIA's white paper on Volta).
    pub fn peak_operations(&self) -> Option<u64> {
        let megahertz = self.clocks.as_ref()?.sm_max.ok()?;
        let cores = self.product.as_ref()?.cores.ok()?;
        Some(u64::from(megahertz) * 1_000_000 * 2 * u64::from(cores)).filter(|rate| *rate > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Clocks, Product};
    use super::*;
    use crate::absent::Absent;

    #[test]
    fn peaks_are_those_of_data_sheets() {
        let of = |cores, bits, sm, memory| DeviceDetails {
            product: Some(Product {
                cores: Ok(cores),
                memory_bus_width: Ok(bits),
                ..Product::default()
            }),
            clocks: Some(Clocks { sm_max: Ok(sm), memory_max: Ok(memory), ..Clocks::default() }),
            ..DeviceDetails::default()
        };
        let v100 = of(5120, 4096, 1530, 877);
        assert_eq!(v100.peak_memory_rate(), Some(898_048_000_000));
        assert_eq!(v100.peak_operations(), Some(15_667_200_000_000));
        let gtx_1080_ti = of(3584, 352, 1911, 5505);
        assert_eq!(gtx_1080_ti.peak_memory_rate(), Some(484_440_000_000));
    }

    #[test]
    fn peak_is_unknown_if_a_figure_is_missing_or_zero() {
        let product = Product { cores: Ok(0), ..Product::default() };
        let clocks = Clocks { sm_max: Ok(1530), memory_max: Ok(877), ..Clocks::default() };
        let details = DeviceDetails {
            product: Some(product),
            clocks: Some(clocks),
            ..DeviceDetails::default()
        };
        assert_eq!((details.peak_operations(), details.peak_memory_rate()), (None, None));
        let absent = Clocks::absent(Absent::NotPermitted);
        assert_eq!(DeviceDetails { clocks: Some(absent), ..details }.peak_operations(), None);
        assert_eq!(DeviceDetails::default().peak_memory_rate(), None);
    }
}
