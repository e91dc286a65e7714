//! Files of other tools: opens and writes them, and chooses who reads what.

pub mod blind;
mod error;
pub mod export;
mod format;
pub mod import;

pub use error::ConvertError;
pub use format::Format;
