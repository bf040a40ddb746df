#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Comments and pages speak of what there is: every name of code in a comment (two words joined by _, or a file) and every
# file that a page of docs/ names exists. Names of others (the system's, a library's, a formula's) stand in
# tests/floors/comments.txt, each with whose it is; one that nothing needs any more is an error too. What a test says to its suite is read
# by tests/suite.cmake instead.
root=$2
cd "$root" || exit 1
command -v perl >/dev/null || { echo "FAILED: no perl"; exit 1; }
exec perl - <<'PERL'
use strict;
use warnings;
my @sources = split ' ', `find src tests -name '*.[ch]' | sort`;
my @pages = (<docs/*.md>, <*.md>);
my (%known, %ends, %files, @comments, %used, %foreign);
for (@sources, split ' ', `git ls-files 2>/dev/null || find . -type f`) { my ($base) = m{([^/]+)$}; $files{$base} = 1; $files{$_} = 1; }
open(my $list, '<', 'tests/floors/comments.txt') or die "comments.txt: $!";
while (<$list>) { next if /^#/ or /^\s*$/; my ($name, $whose) = /^(\S+)\s+(.+)/ or die "comments.txt: '$_' does not say whose"; $foreign{$name} = $whose; }
for my $path (@sources) {
    open(my $in, '<', $path) or die "$path: $!";
    local $/;
    my $text = <$in>;
    my ($code, $line) = ('', 1);
    while ($text =~ m{("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(//[^\n]*|/\*.*?\*/)|([^"'/]+|.)}gs) {
        my $piece = $&;
        if (defined $2) { push @comments, [$path, $line, $2] unless $2 =~ m{^/\* suite: }; } else { $code .= $piece; }
        $line += ($piece =~ tr/\n//);
    }
    while ($code =~ /([A-Za-z_]\w*)/g) {
        my $name = $1;
        next if $known{$name}++;
        # What a macro makes of a prefix and a word, and families of names: OP_MLA_KV for MLA_KV, fold_ for fold_sum.
        $ends{substr($name, $-[0])} = 1 while $name =~ /(?<=_)(?=\w)/g;
        $ends{substr($name, 0, $-[0])} = 1 while $name =~ /(?=_\w)/g;
    }
}
for (<tests/*/*.c>) { my ($base) = m{([^/]+)\.c$}; $known{$base} = 1; } # a program's own name
for (<tests/*/>) { my ($room) = m{([^/]+)/$}; $known{"${room}_tests"} = 1; } # and of a room's
my $failed = 0;
sub missing {
    my ($path, $line, $name) = @_;
    if ($foreign{$name}) { $used{$name} = 1; return; }
    print "FAILED: $path:$line: there is no '$name' (a name of another's: tests/floors/comments.txt)\n";
    $failed++;
}
sub check_files {
    my ($path, $line, $text) = @_;
    while ($text =~ m{(?<![\w/.-])((?:[\w.-]+/)*[\w-]+\.(?:[ch]|sh|md))\b}g) {
        my $name = $1;
        $name =~ s{^(?:\.\./)+}{};
        next if $name =~ m{^_}; # the end of many names
        my $known = $name =~ m{/} ? (grep { $_ eq $name or m{/\Q$name\E$} } keys %files) : $files{$name};
        missing($path, $line, $name) unless $known;
    }
}
for my $comment (@comments) {
    my ($path, $first, $all) = @$comment;
    my $line = $first;
    for my $text (split /\n/, $all, -1) {
        while ($text =~ /(?<![\w.\/])([a-z][a-z0-9]*(?:_[a-z0-9]+)*_[a-z0-9]{3,}|[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+)\b(?!\.)/g) {
            missing($path, $line, $1) unless $known{$1} or $ends{$1};
        }
        check_files($path, $line, $text);
        $line++;
    }
}
for my $path (@pages) {
    open(my $in, '<', $path) or die "$path: $!";
    while (<$in>) { check_files($path, $., $_); }
}
for (sort keys %foreign) { next if $used{$_}; print "FAILED: tests/floors/comments.txt: no comment speaks of '$_'\n"; $failed++; }
exit($failed ? 1 : 0);
PERL
