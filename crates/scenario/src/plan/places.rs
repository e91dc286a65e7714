//! Places by name, and the most populous cities: the package around this crate knows them.

use skyhop_path::Place;

/// Source of places; errors are one line.
pub trait Places {
    /// Return the place that a name or a position means.
    ///
    /// # Errors
    /// There is no such place; the message may suggest others.
    fn find(&self, text: &str) -> Result<Place, String>;

    /// Inhabitants of the place that a name means; `None` if they are not known.
    fn population(&self, _text: &str) -> Option<u64> {
        None
    }

    /// Return the most populous cities with their inhabitants, the largest first.
    ///
    /// # Errors
    /// Fewer cities are known.
    fn largest(&self, count: usize) -> Result<Vec<(Place, u64)>, String> {
        Err(format!(
            "expected a list of sites: no list of cities has the {count} largest ones here"
        ))
    }
}

impl<F: Fn(&str) -> Result<Place, String>> Places for F {
    fn find(&self, text: &str) -> Result<Place, String> {
        self(text)
    }
}

/// Reference to a source of places.
pub type FindPlace<'f> = &'f dyn Places;
