//! Guides as they stand in the documentation: what is to be written, what is to be run, what is then printed.
//!
//! A block's first line says what it is, such as `file NAME` or `sh`; blocks with a kind that no test knows are for
//! reading only. Commands stand behind `$`, each before what it prints; a line of three dots stands for any rest.

use std::path::Path;

/// The text of a guide.
///
/// # Panics
/// Where it is not there.
pub fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guides").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display()))
}

/// The fenced blocks of a text: what stands behind the fence, and what is inside.
pub fn blocks(text: &str) -> Vec<(&str, &str)> {
    let parts: Vec<&str> = text.split("```").collect();
    parts.iter().skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

/// The commands of a block, each with the lines that it prints.
///
/// # Panics
/// Where something is printed before the first command.
pub fn prompts(block: &str) -> Vec<(&str, Vec<&str>)> {
    let mut prompts: Vec<(&str, Vec<&str>)> = Vec::new();
    for line in block.lines() {
        match line.strip_prefix("$ ") {
            Some(command) => prompts.push((command, Vec::new())),
            None => prompts.last_mut().expect("a command comes first").1.push(line),
        }
    }
    prompts
}

/// Holds what a command printed against what the guide says.
///
/// # Panics
/// Where they differ.
pub fn compare(command: &str, printed: &str, expected: &[&str]) {
    assert!(is_as(printed, expected), "{command}:\n{printed}\nand not {expected:#?}");
}

/// Whether a command printed what the guide says, which may leave out how that ends, and how it begins, too.
pub fn is_as(printed: &str, expected: &[&str]) -> bool {
    let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
    match expected {
        ["...", known @ .., "..."] => printed.windows(known.len()).any(|lines| lines == known),
        [known @ .., "..."] => printed.starts_with(known),
        all => printed == *all,
    }
}
