//! What every GPU of one product tells, so that equal ones need not repeat it.

use crate::file::Place;
use crate::machine::Device;
use gpu_core::{DeviceDetails, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::OnceLock;
use toml::Spanned;

/// The products that made machines have.
const BUILT_IN: &str = include_str!("../../../sim-fixtures/products.toml");

/// Products by the names that their devices tell.
pub(crate) type Products = BTreeMap<Spanned<String>, Tells>;

/// What a device tells beyond a sample.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Tells {
    /// At rest.
    pub(crate) details: DeviceDetails,
    /// Instead of that, while something computes on it.
    pub(crate) busy: DeviceDetails,
}

/// Lets a device tell what its product does: the built-in ones first, then those of the machine.
///
/// A device that a recording shows is not of the built-in ones: it tells what was recorded.
pub(crate) fn overlay(device: &mut Device, own: &Products, recorded: bool) {
    let Ok(name) = device.info.name.clone() else { return };
    let built_in = built_in().filter(|_| !recorded);
    for products in built_in.into_iter().chain([own]) {
        if let Some((_, tells)) = products.iter().find(|(known, _)| *known.get_ref() == name) {
            tells.lay_over(device);
        }
    }
}

/// Refuses a product that no device of the machine is.
///
/// # Errors
/// `Invalid`, naming the line.
pub(crate) fn check(devices: &[Device], own: &Products, place: Place<'_>) -> Result<()> {
    let named = |name: &str| devices.iter().any(|d| d.info.name.as_deref() == Ok(name));
    match own.keys().find(|product| !named(product.get_ref())) {
        Some(product) => {
            let what = format!("no GPU of this machine is a '{}'", product.get_ref());
            Err(place.error(Some(product.span()), &what))
        }
        None => Ok(()),
    }
}

impl Tells {
    pub(crate) fn lay_over(&self, device: &mut Device) {
        device.details.overlay(&self.details);
        device.busy.overlay(&self.busy);
    }
}

fn built_in() -> Option<&'static Products> {
    static PRODUCTS: OnceLock<Option<Products>> = OnceLock::new();
    PRODUCTS.get_or_init(|| toml::from_str(BUILT_IN).ok()).as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_products_are_well_formed() {
        let products: Products = toml::from_str(BUILT_IN).unwrap();
        assert!(products.len() >= 3);
        assert_eq!(built_in().unwrap().len(), products.len());
    }
}
