module example.invalid/tenure

go 1.19
