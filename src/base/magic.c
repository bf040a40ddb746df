/* SPDX-License-Identifier: Apache-2.0 */
/* magic.c: a table of first bytes. The order counts where one beginning is another's: the first row that fits is taken.
 * Rejected: libmagic, whose names are made for people who look at files, not for what to do next.
 */
#include "base/magic.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { LETTERS = 3 }; /* rows */
#define ROW(bytes, offset, name, remedy)                                                                               \
    {                                                                                                                  \
        bytes, sizeof bytes - 1, offset, { name, remedy }                                                              \
    }
#define UNPACKED "; it has to be unpacked first: "
#define EXPORT "; save its text as .txt or .jsonl first"

static const struct {
    const char *bytes;
    size_t n, at;
    struct magic is;
} rows[] = {
    /* clang-format off */
    /* These three are made of letters, and are no text all the same. */
    ROW("version https://git-lfs.github.com/spec/", 0, "a git-lfs pointer, whose content was not downloaded",
        "; git lfs install && git lfs pull, in its folder, downloads it"),
    ROW("%PDF-", 0, "a PDF document", "; extract its text first: pdftotext FILE FILE.txt"),
    ROW("{\\rtf", 0, "an RTF document", EXPORT),
    ROW("\x1F\x8B", 0, "compressed by gzip", UNPACKED "zcat FILE > FILE.txt"),
    ROW("\x28\xB5\x2F\xFD", 0, "compressed by zstd", UNPACKED "zstdcat FILE > FILE.txt"),
    ROW("\xFD" "7zXZ\0", 0, "compressed by xz", UNPACKED "xzcat FILE > FILE.txt"),
    ROW("BZh", 0, "compressed by bzip2", UNPACKED "bzcat FILE > FILE.txt"),
    ROW("\x04\x22\x4D\x18", 0, "compressed by lz4", UNPACKED "lz4cat FILE > FILE.txt"),
    ROW("7z\xBC\xAF\x27\x1C", 0, "a 7z archive", UNPACKED "7z x FILE, and name the folder"),
    ROW("Rar!\x1A\x07", 0, "a RAR archive", UNPACKED "unrar x FILE, and name the folder"),
    ROW("PAR1", 0, "a Parquet table", NULL),
    ROW("ARROW1", 0, "an Arrow table", "; write its column of text as .jsonl first, one {\"text\": ...} per line"),
    ROW("ustar", 257, "a tar archive", UNPACKED "tar xf FILE -C FOLDER, and name the folder"),
    ROW("\xD0\xCF\x11\xE0\xA1\xB1\x1A\xE1", 0, "an old Office document (doc, xls, ppt)", EXPORT),
    ROW("SQLite format 3\0", 0, "an SQLite database", EXPORT),
    ROW("\x89HDF\r\n\x1A\n", 0, "an HDF5 file", EXPORT),
    ROW("\x93NUMPY", 0, "a NumPy array", "; if it holds token ids, tokenize the text it was made from instead"),
    ROW("GGUF", 0, "a GGUF model", NULL),
    ROW("tuttitok", 0, "a token file of tutti", "; name it without .tok, as its prefix"),
    ROW("MMIDIDX\0", 0, "the index of a Megatron token file",
        "; a config takes it as it is, by its path without .idx"),
    ROW("\x89PNG\r\n\x1A\n", 0, "a PNG picture", NULL),
    ROW("\xFF\xD8\xFF", 0, "a JPEG picture", NULL),
    ROW("GIF8", 0, "a GIF picture", NULL),
    ROW("WEBP", 8, "a WebP picture", NULL),
    ROW("WAVE", 8, "a WAV recording", NULL),
    ROW("ftyp", 4, "an MP4 film", NULL),
    ROW("ID3", 0, "an MP3 recording", NULL),
    ROW("OggS", 0, "an Ogg recording", NULL),
    ROW("\x7F" "ELF", 0, "a program", NULL),
    ROW("MZ\x90\0", 0, "a program", NULL),
    ROW("\xFF\xFE", 0, "text in UTF-16", "; write it in UTF-8 first: iconv -f UTF-16 -t UTF-8 FILE > FILE.txt"),
    ROW("\xFE\xFF", 0, "text in UTF-16", "; write it in UTF-8 first: iconv -f UTF-16 -t UTF-8 FILE > FILE.txt"),
    ROW("\x80\x02", 0, "a Python pickle", NULL),
    ROW("\x80\x03", 0, "a Python pickle", NULL),
    ROW("\x80\x04", 0, "a Python pickle", NULL),
    ROW("\x80\x05", 0, "a Python pickle", NULL),
    /* clang-format on */
};

/* Zip archives, told apart by the name of the first file in them, which begins at byte 30. */
#define ZIP "PK\x03\x04"
static const struct {
    const char *first;
    struct magic is;
} zips[] = {
    {"[Content_Types].xml", {"an Office document (docx, xlsx, pptx)", EXPORT}},
    {"mimetypeapplication/epub+zip", {"an e-book", EXPORT}},
    {"mimetypeapplication/vnd.oasis", {"an OpenDocument file", EXPORT}},
    {"", {"a zip archive (.npz and .pt are such, too)", UNPACKED "unzip FILE -d FOLDER, and name the folder"}},
};

static const struct magic *zip_of(const char *p, size_t n)
{
    size_t i = 0;
    while (30 + strlen(zips[i].first) > n || memcmp(p + 30, zips[i].first, strlen(zips[i].first)) != 0) {
        if (!*zips[i].first) break;
        i++;
    }
    return &zips[i].is;
}

const struct magic *magic_of(const void *p, size_t n)
{
    if (n >= 4 && !memcmp(p, ZIP, 4)) return zip_of(p, n);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].at + rows[i].n <= n && !memcmp((const char *)p + rows[i].at, rows[i].bytes, rows[i].n))
            return &rows[i].is;
    return NULL;
}

const struct magic *magic_of_file(const char *path)
{
    char text[MAGIC_BYTES];
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text);
    if (fd >= 0) close(fd);
    return n > 0 ? magic_of(text, (size_t)n) : NULL;
}

const struct magic *magic_in_letters(const void *p, size_t n)
{
    for (size_t i = 0; i < LETTERS; i++)
        if (rows[i].n <= n && !memcmp(p, rows[i].bytes, rows[i].n)) return &rows[i].is;
    return NULL;
}

bool magic_is_lfs_pointer(const char *path) { return magic_of_file(path) == &rows[0].is; }
