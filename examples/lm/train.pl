#!/usr/bin/perl
# Word vectors by skip-gram with negative sampling: one worker, in Perl with PDL. train.py and train.lua are equivalent;
# train.py describes the method.
#
#     polyverso run -n 3 -- perl examples/lm/train.pl [--folder build/lm] [--epochs 10] [--seed 1] [--report 1]
#                                                     [--save-every ROUNDS] [--resume 1]
use v5.26;
use warnings;

use FindBin;
use Getopt::Long;
use PDL;
use Polyverso;
use Time::HiRes qw(clock_gettime CLOCK_MONOTONIC);

use constant {
    DIMENSIONS => 64,
    WINDOW     => 5,       # words on each side, at most; each centre word draws 1 .. WINDOW
    NEGATIVES  => 5,       # for each pair of words
    POOL       => 64,      # drawn per block and shared by all its pairs: their vectors are sent once
    SAMPLE     => 2e-4,    # words more frequent than this are subsampled
    BLOCK      => 1000,    # words of the text
    STALENESS  => 2,       # how many blocks the fastest worker may be ahead of the slowest
    UPDATER    => 'adagrad rate=0.1',
};

sub content {
    my ($path) = @_;
    open my $file, '<:raw', $path or die "train.pl: $path: $!: run corpus.py first\n";
    local $/;
    return scalar <$file>;
}

# Returns the text as numbers, and the distributions to draw from.
sub read_corpus {
    my ($folder) = @_;
    my $counts  = pdl(content("$folder/words.txt") =~ /^\S+ (\d+)$/mg);
    my $tokens  = longlong(unpack 'l<*', content("$folder/tokens.i32"));
    my $share   = SAMPLE * $tokens->nelem / $counts;
    my $noise   = ($counts**0.75)->cumusumover;
    return {
        tokens => $tokens,
        words  => $counts->nelem,
        blocks => int(($tokens->nelem + BLOCK - 1) / BLOCK),
        kept   => sqrt($share) + $share,
        noise  => $noise / $noise->at(-1),
    };
}

# The kept words of block `number`, the window of each, and the pool of negatives. The draws depend only on seed and
# number, so a resumed training repeats those of the killed one.
sub block {
    my ($corpus, $seed, $number) = @_;
    PDL::srand($seed * 1_000_003 + $number);
    my $first = $number % $corpus->{blocks} * BLOCK;
    my $last  = $first + BLOCK - 1;
    $last = $corpus->{tokens}->nelem - 1 if $last >= $corpus->{tokens}->nelem;
    my $words = $corpus->{tokens}->slice([$first, $last]);
    $words = $words->index(which(random($words->nelem) < $corpus->{kept}->index($words)));
    my $reach = 1 + (random($words->nelem) * WINDOW)->long;
    return $words, $reach, random(POOL)->vsearch_insert_leftmost($corpus->{noise})->longlong;
}

sub sigmoid { return 1 / (1 + exp(-$_[0])) }

# Returns the gradients of the loss by each row of the three matrices, the loss, and its number of pairs; see train.py.
# PDL names columns first: a matrix of n vectors has the dims (DIMENSIONS, n).
sub gradients {
    my ($middles, $outer, $pool, $reach) = @_;
    my ($by_middles, $by_outer) = ($middles->zeroes, $outer->zeroes);
    my $count = $middles->dim(1);
    my $pairs = zeroes(float, $count);
    my $loss  = 0;
    for my $distance (1 .. ($count > WINDOW ? WINDOW : $count - 1)) {
        my ($left, $right) = ([0, $count - 1 - $distance], [$distance, $count - 1]);
        for my $ij ([$left, $right], [$right, $left]) {
            my ($i, $j) = @$ij;
            my $wanted = ($reach->slice($i) >= $distance)->float;
            my ($middle, $around) = ($middles->slice([], $i), $outer->slice([], $j));
            my $likely = sigmoid(inner($middle, $around));
            my $slope  = ($wanted * ($likely - 1))->dummy(0);
            $by_middles->slice([], $i) += $slope * $around;
            $by_outer->slice([], $j)   += $slope * $middle;
            $pairs->slice($i)          += $wanted;
            $loss -= sum($wanted * log($likely));
        }
    }
    my $likely = sigmoid($middles x $pool->transpose);
    my $weight = (NEGATIVES / POOL * $pairs)->dummy(0);
    my $slope  = $weight * $likely;
    $loss -= sum($weight * log(1 - $likely->hclip(0.9999999)));
    return $by_middles + $slope x $pool, $by_outer, $slope->transpose x $middles, $loss, sum($pairs);
}

sub now { return clock_gettime(CLOCK_MONOTONIC) }

# Returns a function that worker 0 calls after each block. It prints the progress of all workers every $seconds seconds.
sub reporter {
    my ($progress, $total, $seconds) = @_;
    my $begun = my $last = now();
    my $first = sum($progress->get);
    my ($loss, $pairs, $mean) = (0, 0, 'nan');
    return sub {
        my ($more_loss, $more_pairs, $at_once) = @_;
        $loss  += $more_loss;
        $pairs += $more_pairs;
        return if now() < $last + $seconds && !$at_once;
        $last = now();
        $mean = $loss / $pairs if $pairs > 0;
        my $done = sum($progress->get);
        $done = $total if $done > $total;
        printf "%5.1f %%  block %d of %d  loss %.4f  %.0f words/s  %.1f s\n", 100 * $done / $total, $done, $total,
            $mean, ($done - $first) * BLOCK / ($last - $begun), $last - $begun;
        ($loss, $pairs) = (0, 0);
    };
}

sub train {
    my ($node, %options) = @_;
    my $corpus = read_corpus($options{folder});
    my $saved  = "$options{folder}/checkpoints";
    $node->load($saved) if $options{resume};    # creating the tables below then finds them with their values
    my %shape   = (rows => $corpus->{words}, cols => DIMENSIONS, updater => UPDATER, staleness => STALENESS);
    my $inputs  = $node->sparse(name => 'input', initial_range => 0.5 / DIMENSIONS, seed => $options{seed}, %shape);
    my $outputs = $node->sparse(name => 'output', %shape);
    my ($me, $workers) = ($node->worker_id, $node->num_workers);
    # The rounds that each worker has done. Saved together with the vectors.
    my $progress = $node->array(size => $workers, dtype => 'i64', name => 'progress');

    my $total  = $options{epochs} * $corpus->{blocks};
    my $rounds = int(($total + $workers - 1) / $workers);
    my $report = reporter($progress, $total, $options{report});
    for my $round ($progress->get->at($me) .. $rounds - 1) {
        my $number = $round * $workers + $me;
        my ($words, $reach, $pool) = block($corpus, $options{seed}, $number);
        my $count = $words->nelem;
        my ($loss, $pairs) = (0, 0);
        if ($number < $total && $count > 1) {
            my $around = $words->append($pool);
            my ($middles, $outer) = ($inputs->get(rows => $words), $outputs->get(rows => $around));
            (my ($by_middles, $by_outer, $by_pool), $loss, $pairs) =
                gradients($middles, $outer->slice([], [0, $count - 1]), $outer->slice([], [$count, -1])->sever, $reach);
            # A word can occur twice: the library sums its gradients.
            $inputs->add($by_middles, rows => $words, forget => 1);
            $outputs->add($by_outer->glue(1, $by_pool), rows => $around, forget => 1);
        }
        $_->clock for $inputs, $outputs;
        $progress->add([1], rows => [$me], forget => 1);
        $report->($loss, $pairs) if $me == 0;
        if ($options{'save-every'} && ($round + 1) % $options{'save-every'} == 0) {
            $node->save($saved, keep => 2);
            printf "saved after round %d of %d\n", $round + 1, $rounds if $me == 0;
        }
    }
    $node->barrier;
    return if $me != 0;
    $report->(0, 0, 1);
    my $vectors = $inputs->peek(rows => sequence(longlong, $corpus->{words}));
    open my $file, '>:raw', "$options{folder}/vectors.f32" or die "$options{folder}/vectors.f32: $!\n";
    print {$file} ${ $vectors->get_dataref };
    close $file or die "$options{folder}/vectors.f32: $!\n";
    say "trained: see nearest.py for what is in $options{folder}/vectors.f32";
    return;
}

$| = 1;
my %options = (epochs => 10, seed => 1, report => 1, 'save-every' => 0, resume => 0);
$options{folder} = "$FindBin::Bin/../../build/lm";
GetOptions(\%options, 'folder=s', 'epochs=i', 'seed=i', 'report=f', 'save-every=i', 'resume=i') or exit 2;
my $node = Polyverso->init;
train($node, %options);
$node->shutdown;
