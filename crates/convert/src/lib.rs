//! Files of other tools: opens and writes them, and chooses the parser or writer by format.

pub mod blind;
mod error;
pub mod export;
mod format;
pub mod import;
pub mod kind;

pub use error::ConvertError;
pub use format::Format;
