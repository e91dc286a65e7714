//! Films, controllers and sessions as users of the crate see them.

mod arithmetic;
mod conformance;
mod damaged;
mod films;
mod looking_ahead;
mod planning;
mod restated;
mod traces;
