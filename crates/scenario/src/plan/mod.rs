//! From a checked scenario to what an engine runs: the path computed, the links built.

mod announce;
mod app_files;
mod assemble;
mod cc_files;
mod change;
mod flows;
mod forecast;
mod foretold;
mod hops;
mod links;
mod notes;
mod origin;
mod path;
mod path_request;
mod schedule;

pub use cc_files::CcFiles;
pub use origin::constellation_of;
pub use path::Progress;
pub use path_request::FindPlace;
