//! A defect of the schema, for debug builds whose environment names it; see [`tenure_core::planted`].

use std::borrow::Cow;

/// The text of a migration, with the defect that this process has.
pub(crate) fn alter(text: &str) -> Cow<'_, str> {
    match tenure_core::planted::planted("reserve-over-capacity") {
        true => text
            .replace("p.occupancy < p.capacity", "p.occupancy <= p.capacity")
            .into(),
        false => text.into(),
    }
}
