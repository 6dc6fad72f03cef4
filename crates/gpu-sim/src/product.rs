//! Values common to all GPUs of one product.

use crate::machine::Device;
use crate::toml_source::TomlSource;
use gpu_core::{DeviceDetails, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use toml::Spanned;

/// The products of synthetic machines.
const BUILT_IN: &str = include_str!("../sim-fixtures/products.toml");

/// Products by the names that their devices report.
pub(crate) type Products = BTreeMap<Spanned<String>, ProductDetails>;

/// Values beyond a sample.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ProductDetails {
    /// Values of an idle device.
    pub(crate) details: DeviceDetails,
    /// Overrides while a process computes on the device.
    pub(crate) busy: DeviceDetails,
}

/// Applies the values of a device's product: the built-in ones first, then those of the machine.
///
/// Built-in products do not apply to a device from a recording: it reports the recorded values.
pub(crate) fn overlay(device: &mut Device, own: &Products, recorded: bool) {
    let Ok(name) = device.info.name.clone() else { return };
    if !recorded && let Some(details) = built_in(&name) {
        details.apply_to(device);
    }
    if let Some((_, details)) = own.iter().find(|(known, _)| *known.get_ref() == name) {
        details.apply_to(device);
    }
}

/// Refuses a product without a device in the machine.
///
/// # Errors
/// `Invalid`, with the line.
pub(crate) fn check(devices: &[Device], own: &Products, source: TomlSource<'_>) -> Result<()> {
    let named = |name: &str| devices.iter().any(|d| d.info.name.as_deref() == Ok(name));
    match own.keys().find(|product| !named(product.get_ref())) {
        Some(product) => {
            let what = format!("this machine has no GPU of product '{}'", product.get_ref());
            Err(source.error(Some(product.span()), &what))
        }
        None => Ok(()),
    }
}

impl ProductDetails {
    fn apply_to(&self, device: &mut Device) {
        device.details.overlay(&self.details);
        device.busy.overlay(&self.busy);
    }
}

/// Returns the values of a product of synthetic machines. Parses only this product, and only once,
/// because parsing all products takes longer than starting a machine.
fn built_in(name: &str) -> Option<Arc<ProductDetails>> {
    static READ: Mutex<BTreeMap<String, Arc<ProductDetails>>> = Mutex::new(BTreeMap::new());
    let mut read = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = read.get(name) {
        return Some(Arc::clone(known));
    }
    let products: Option<Products> = toml::from_str(&tables(name)).ok();
    let details = Arc::new(products?.into_values().next()?);
    read.insert(name.to_owned(), Arc::clone(&details));
    Some(details)
}

/// Returns the tables of a product: those that start with its name.
fn tables(name: &str) -> String {
    let begin = format!("[\"{name}\".");
    let mut own = false;
    let lines = BUILT_IN.split_inclusive('\n').filter(|line| {
        if line.starts_with('[') {
            own = line.starts_with(&begin);
        }
        own
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_products_are_well_formed() {
        let products: Products = toml::from_str(BUILT_IN).unwrap();
        assert!(products.len() >= 3);
        for (name, details) in products {
            let alone = built_in(name.get_ref()).unwrap();
            assert_eq!(format!("{alone:?}"), format!("{details:?}"), "{name:?}");
        }
        assert!(built_in("NVIDIA").is_none() && built_in("").is_none());
    }
}
