//! The sender and the receiver against each other over a small simulated path.

mod behaviour_of_modules;
mod clean_path;
mod loss;
mod oracle;
mod outage;
mod path;
mod properties;
mod receiving;
mod reno;
mod reordering;
mod trouble;
