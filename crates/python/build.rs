//! Lays out what a wheel's package holds besides code, for those without a checkout: studies/ and examples/.
//! pyproject.toml says where in the package it goes; in a checkout skyhop reads them where they are.

use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_WHEEL").is_none() {
        return Ok(());
    }
    let out = PathBuf::from(env::var("OUT_DIR").map_err(io::Error::other)?);
    for kind in ["studies", "examples"] {
        let source = Path::new("../..").join(kind);
        println!("cargo:rerun-if-changed={}", source.display());
        let copy = out.join(kind);
        // What has left the checkout leaves the wheel.
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        fs::create_dir(&copy)?;
        for entry in fs::read_dir(source)? {
            let entry = entry?;
            // Directories hold what is for those with a checkout.
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), copy.join(entry.file_name()))?;
            }
        }
    }
    Ok(())
}
