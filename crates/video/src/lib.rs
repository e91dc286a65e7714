//! Adaptive video (DASH), sans IO.
//!
//! A [`Film`] has tracks of several bitrates, cut into chunks. A [`Session`](session::Session) is a player: it asks a
//! [`Controller`](controllers::Controller) for each chunk's track, and is told when the chunk has come. What came of it is a
//! [`ChunkRow`] per chunk, of which a [`Qoe`](qoe::Qoe) makes one number. Controllers that plan use the same object.
//! A session is driven over a rate in virtual time by [`over_rate`], over TCP by an application, in a browser by the browser.

pub mod ahead;
pub mod chunk;
pub mod controllers;
mod estimate;
pub mod film;
mod history;
pub mod optimum;
pub mod over_rate;
pub mod planner;
pub mod qoe;
pub mod rate_trace;
pub mod session;

pub use chunk::{ChunkRow, Summary};
pub use film::{Film, FilmError};
pub use rate_trace::{RateTrace, RateTraceError};
