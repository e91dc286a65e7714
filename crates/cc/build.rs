//! Compiles every `cc/*.c` twice, for this host and (if there is clang) for the kernel's BPF, and writes the
//! table that names them. A new file in `cc/` needs nothing else.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

fn main() -> Result<(), Box<dyn Error>> {
    let sources = fs::canonicalize("../../cc")?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    println!("cargo:rerun-if-changed={}", sources.display());
    let fixtures = fs::canonicalize("tests/modules")?;
    println!("cargo:rerun-if-changed={}", fixtures.display());

    let names = algorithms(&sources)?;
    let test_names = algorithms(&fixtures)?;
    compile_natively("skyhop_cc", &sources, &sources, &names);
    compile_natively("skyhop_cc_fixtures", &sources, &fixtures, &test_names);
    let clang = clang_for_bpf();
    if clang.is_none() && env::var_os("CARGO_FEATURE_REQUIRE_BPF").is_some() {
        return Err("require-bpf: there is no clang that targets bpf: install clang".into());
    }
    let mut table = String::from("unsafe extern \"C\" {\n");
    for name in names.iter().chain(&test_names) {
        writeln!(table, "    #[link_name = \"skyhop_module_{name}\"]")?;
        writeln!(table, "    static {}: bindings::Module;", name.to_uppercase())?;
    }
    table.push_str("}\n\nstatic MODULES: &[Module] = &[\n");
    for name in &names {
        let bpf = match &clang {
            Some(clang) => {
                let current = compile_for_bpf(clang, &sources, &out, name, &[])?;
                let before =
                    compile_for_bpf(clang, &sources, &out, name, &["-DSKYHOP_BEFORE_6_10"])?;
                format!(
                    "Some(BpfObjects {{ current: include_bytes!({current:?}), \
                     before_6_10: include_bytes!({before:?}) }})"
                )
            }
            None => String::from("None"),
        };
        writeln!(table, "{}", row(name, &bpf, uses_announcements(&sources, name)?))?;
    }
    table.push_str("];\n\nstatic FIXTURES: &[Module] = &[\n");
    for name in &test_names {
        writeln!(table, "{}", row(name, "None", uses_announcements(&fixtures, name)?))?;
    }
    table.push_str("];\n");
    fs::write(out.join("modules.rs"), table)?;
    Ok(())
}

fn row(name: &str, bpf: &str, uses_announcements: bool) -> String {
    let upper = name.to_uppercase();
    format!(
        "    Module {{ name: {name:?}, native: &raw const {upper}, bpf: {bpf}, uses_announcements: {uses_announcements}, file: None }},"
    )
}

/// Whether an algorithm reads announced handovers, found by the call in its source.
fn uses_announcements(sources: &Path, name: &str) -> Result<bool, Box<dyn Error>> {
    Ok(fs::read_to_string(sources.join(format!("{name}.c")))?.contains("skyhop_handover("))
}

/// Names of the algorithms' files without extension, in alphabetical order.
fn algorithms(sources: &Path) -> Result<Vec<String>, Box<dyn Error>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(sources)? {
        let path = entry?.path();
        println!("cargo:rerun-if-changed={}", path.display());
        if path.extension().is_some_and(|extension| extension == "c") {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
            let is_plain = stem.starts_with(|c: char| c.is_ascii_lowercase())
                && stem.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
            // The kernel limits names of congestion controls to 15 characters.
            if !is_plain || stem.len() > 15 {
                return Err(format!(
                    "{}: name it with at most 15 of a-z, 0-9 and _, starting with a letter",
                    path.display()
                )
                .into());
            }
            names.push(stem.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn compile_natively(library: &str, headers: &Path, sources: &Path, algorithms: &[String]) {
    cc::Build::new()
        .files(algorithms.iter().map(|name| sources.join(format!("{name}.c"))))
        .include(headers)
        .opt_level(2)
        .warnings(true)
        .extra_warnings(true)
        .compile(library);
}

/// Find the clang that compiles for BPF; without one the build goes on without the kernel's half.
///
/// Cargo runs this again when that clang changes or disappears or, without one, when a directory of PATH
/// changes.
fn clang_for_bpf() -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let directories: Vec<PathBuf> = env::split_paths(&path).filter(|dir| dir.is_dir()).collect();
    let found = directories.iter().map(|dir| dir.join("clang")).find(|file| targets_bpf(file));
    if let Some(clang) = &found {
        println!("cargo:rerun-if-changed={}", clang.display());
    } else {
        println!("cargo:rerun-if-env-changed=PATH");
        for directory in directories {
            println!("cargo:rerun-if-changed={}", directory.display());
        }
    }
    found
}

fn targets_bpf(clang: &Path) -> bool {
    let targets = Command::new(clang).arg("--print-targets").output();
    targets.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("bpf"))
}

fn compile_for_bpf(
    clang: &Path,
    sources: &Path,
    out: &Path,
    name: &str,
    defines: &[&str],
) -> Result<PathBuf, Box<dyn Error>> {
    let object = out.join(format!("{name}{}.bpf.o", defines.concat()));
    let mut clang = Command::new(clang);
    clang.args([
        "-O2",
        "-g",
        "-target",
        "bpf",
        "-mcpu=v3",
        "-std=gnu11",
        "-Wall",
        "-Wextra",
        "-Werror",
    ]);
    clang.args(defines);
    // The kernel's log then quotes paths within the project, not those of the machine that built it.
    let root = sources.parent().unwrap_or(sources);
    clang.arg(format!("-fdebug-prefix-map={}=.", root.display()));
    // Debian keeps the headers that linux/types.h needs under the name of the machine that compiles. Its types are the
    // same on all architectures of 64 bits.
    let host = env::var("HOST")?;
    let arch = host.split('-').next().unwrap_or_default();
    clang.arg("-idirafter").arg(format!("/usr/include/{arch}-linux-gnu"));
    clang.arg("-c").arg(sources.join(format!("{name}.c"))).arg("-o").arg(&object);
    let output = clang.output()?;
    match output.status.success() {
        true => Ok(object),
        false => Err(format!(
            "clang cannot compile cc/{name}.c for BPF:\n{}",
            String::from_utf8_lossy(&output.stderr)
        )
        .into()),
    }
}
