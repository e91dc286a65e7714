//! Adaptive video (DASH), sans IO.
//!
//! A [`Film`] has tracks of several bitrates, cut into chunks. A [`Session`](session::Session) is a player:
//! it asks a [`Controller`](controllers::Controller) for each chunk's track, and the driver of the session
//! reports the chunk's arrival. The result is a [`ChunkRow`] per chunk, which a [`Qoe`](qoe::Qoe) combines
//! into one number; controllers that plan ahead use the same object. Three drivers exist: [`over_rate`]
//! over a rate in virtual time, an application over TCP, and the browser.

pub mod chunk;
pub mod controllers;
mod estimate;
pub mod film;
pub mod forecast;
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
