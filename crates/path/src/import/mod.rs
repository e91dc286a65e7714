//! Paths from other tools' files: one file per format.

mod leoem;

pub use leoem::{LeoemLogError, LeoemLogOptions, parse_leoem_log};
