//! Build script that copies the data files of a wheel, studies/ and examples/, to OUT_DIR. pyproject.toml sets their
//! place in the package; in a checkout skyhop reads the originals.

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
        // Files deleted from the checkout must not remain in the wheel.
        if copy.exists() {
            fs::remove_dir_all(&copy)?;
        }
        fs::create_dir(&copy)?;
        for entry in fs::read_dir(source)? {
            let entry = entry?;
            // Subdirectories are for checkouts only.
            if entry.file_type()?.is_file() {
                fs::copy(entry.path(), copy.join(entry.file_name()))?;
            }
        }
    }
    Ok(())
}
