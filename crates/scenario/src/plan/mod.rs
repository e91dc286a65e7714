//! Construction of the experiment that an engine runs from a checked scenario: computes the path
//! and builds the links.

mod announce;
mod app_files;
mod assemble;
mod background;
mod cc_files;
mod change;
mod earlier_run;
mod failures;
mod flows;
mod forecast;
mod grid;
mod ground;
mod hops;
mod links;
mod network;
mod notes;
mod origin;
mod path;
mod path_request;
mod places;
mod rate_oracle;
mod routing;
mod schedule;
mod traffic;

pub use cc_files::CcFiles;
pub use origin::constellation_of;
pub use path::Progress;
pub use places::{FindPlace, Places};
